// The JDK's own HttpClient as it comes: it offers h2c on every request in clear text. Arguments: the server's URL.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

public class JdkClient {
  public static void main(String[] arguments) throws Exception {
    HttpClient client = HttpClient.newHttpClient();
    HttpRequest models = HttpRequest.newBuilder(URI.create(arguments[0] + "/v1/models")).build();
    String body = "{\"prompt\": [1], \"max_tokens\": 2, \"stream\": true}";
    HttpRequest answer = HttpRequest.newBuilder(URI.create(arguments[0] + "/v1/completions"))
                             .header("Content-Type", "application/json")
                             .POST(HttpRequest.BodyPublishers.ofString(body))
                             .build();
    for (int i = 0; i < 3; ++i) {
      HttpResponse<String> response = client.send(models, HttpResponse.BodyHandlers.ofString());
      System.out.println(response.statusCode() + " " + response.version());
      response = client.send(answer, HttpResponse.BodyHandlers.ofString());
      System.out.println(response.statusCode() + " " + response.version() + " " + response.body().contains("[DONE]"));
    }
  }
}
