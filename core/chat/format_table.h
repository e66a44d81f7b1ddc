// The chat formats as data, one function a family (format_table_*.cpp).
#pragma once

#include <vector>

#include "core/chat/chat_format.h"

namespace llmrt {

// In the order in which detection tries them: special ones first, "plain" last.
std::vector<ChatFormat> make_format_table();

void add_deepseek_formats(std::vector<ChatFormat>* table);
void add_mistral_formats(std::vector<ChatFormat>* table);
void add_tagged_formats(std::vector<ChatFormat>* table);
void add_google_formats(std::vector<ChatFormat>* table);
void add_header_formats(std::vector<ChatFormat>* table);
void add_list_formats(std::vector<ChatFormat>* table);    // calls as elements of a list
void add_object_formats(std::vector<ChatFormat>* table);  // calls as JSON objects

}  // namespace llmrt
