// A schema's JSON as a document: which parts have a base URI of their own ($id), which draft each follows, where a $ref
// leads. Nothing outside the document is read. The JSON value must outlive it.
#pragma once

#include <boost/json.hpp>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/grammar/json_schema.h"

namespace llmrt {

enum class Draft : uint8_t { k4, k7, k2019, k2020 };  // 6 is read as 7: what 7 has more is unknown to it

struct SchemaPlace {
  const boost::json::value* value = nullptr;
  std::string pointer;    // from the root
  uint32_t resource = 0;  // whose base URI and draft hold here
};

// The pointer with one more token.
std::string child_pointer(std::string_view pointer, std::string_view token);

// kUnsupportedSchema: "unsupported schema: /a/pattern: keyword "pattern": reason".
Error refuse_schema(std::string_view pointer, std::string_view keyword, std::string_view reason);
// kInvalidArgument: "invalid schema: /a/type: reason".
Error invalid_schema(std::string_view pointer, std::string_view keyword, std::string_view reason);

class SchemaDocument {
 public:
  static Result<SchemaDocument> read(const boost::json::value& root, const SchemaLimits& limits);

  SchemaPlace root() const { return child_of(0, *root_, ""); }
  SchemaPlace child(const SchemaPlace& parent, const boost::json::value& value, std::string_view token) const {
    return child_of(parent.resource, value, child_pointer(parent.pointer, token));
  }
  // `value` stands at list[index] of the parent's keyword.
  SchemaPlace child(const SchemaPlace& parent, const boost::json::value& value, std::string_view keyword,
                    std::string_view token) const {
    return child_of(parent.resource, value, child_pointer(child_pointer(parent.pointer, keyword), token));
  }
  Draft draft(const SchemaPlace& place) const { return resources_[place.resource].draft; }

  // Where the "$ref" of the schema at `from` leads.
  Result<SchemaPlace> resolve(const SchemaPlace& from, std::string_view reference) const;

 private:
  struct Resource {
    std::string uri;  // without a fragment
    Draft draft;
    const boost::json::value* root;
    std::string pointer;
  };

  SchemaPlace child_of(uint32_t resource, const boost::json::value& value, std::string pointer) const;
  Status scan(const boost::json::value& value, const std::string& pointer, uint32_t resource);
  Result<uint32_t> enter(const boost::json::value& value, const std::string& pointer, uint32_t resource);
  Status scan_children(const boost::json::object& schema, const std::string& pointer, uint32_t resource);
  void add_anchor(uint32_t resource, std::string_view name, const boost::json::value& value,
                  const std::string& pointer);
  Result<SchemaPlace> follow(uint32_t resource, std::string_view tokens, const Error& missing) const;

  const boost::json::value* root_ = nullptr;
  std::vector<Resource> resources_;
  std::unordered_map<const boost::json::value*, uint32_t> resource_of_;
  std::map<std::string, uint32_t, std::less<>> by_uri_;
  std::map<std::pair<uint32_t, std::string>, SchemaPlace> anchors_;
};

}  // namespace llmrt
