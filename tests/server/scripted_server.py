"""Starts the server on a model that says a script (scripted_backend.h), and keeps what it printed."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import traceback

# In the manner of Qwen's templates: tools as JSON, calls and results in tags.
TEMPLATE = """{%- if tools %}<|im_start|>system
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools><|im_end|>
{% endif %}{%- for message in messages %}<|im_start|>{{ 'user' if message.role == 'tool' else message.role }}
{% if message.role == 'tool' %}<tool_response>
{{ message.content }}
</tool_response>{% else %}{{ message.content or '' }}{% for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def call(name, **arguments):
    return f'<tool_call>\n{json.dumps({"name": name, "arguments": arguments})}\n</tool_call>'


class ScriptedServer:
    def __init__(self, program, answers, template=TEMPLATE, answer_mark="<|im_start|>assistant", tokens=(),
                 chat_format="hermes", flags=()):
        script = {"answers": answers, "template": template, "answer_mark": answer_mark, "tokens": list(tokens),
                  "chat_format": chat_format}
        file = tempfile.NamedTemporaryFile("w", suffix=".json", delete=False)
        with file:
            json.dump(script, file)
        self.process = subprocess.Popen([program, "--script", file.name, "--step-ms", "0.2", *flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        os.unlink(file.name)
        if not (found := re.match(r"listening (\d+)", line)):
            raise SystemExit("the server did not start: " + self.process.stderr.read())
        self.url = f"http://127.0.0.1:{found.group(1)}/v1"
        self.log = []
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def stop(self):
        """What the script wanted to say and a mask denied."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 0, self.log[-3:]
        self.reader.join(10)
        return [line.strip() for line in self.log if "script: denied" in line]


def passes(program, name, run, answers, **options):
    """Whether run(url) of a client passes, and the script was denied nothing."""
    server = ScriptedServer(program, answers, **options)
    try:
        run(server.url)
        denied = server.stop()
        assert not denied, denied[:3]
    except Exception:  # each client has its own
        print(f"FAILED {name}:")
        traceback.print_exc(limit=-4, file=sys.stdout)
        server.process.kill()
        return False
    print(f"passed {name}")
    return True
