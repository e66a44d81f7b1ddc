#include "backends/vulkan/api.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "backends/vulkan/check.h"

namespace llmrt::vulkan {
namespace {

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";

bool validation_wanted() {
  const char* value = std::getenv("LLMRT_VULKAN_VALIDATION");
  return value && std::strcmp(value, "0") != 0;
}

// A validation error is our own bug: it stops the process like a broken LLMRT_CHECK.
VKAPI_ATTR VkBool32 VKAPI_CALL on_validation_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                     VkDebugUtilsMessageTypeFlagsEXT,
                                                     const VkDebugUtilsMessengerCallbackDataEXT* data, void*) {
  std::fprintf(stderr, "vulkan validation: %s\n", data->pMessage);
  if (severity & VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT) std::abort();
  return VK_FALSE;
}

VkDebugUtilsMessengerCreateInfoEXT messenger_info() {
  VkDebugUtilsMessengerCreateInfoEXT info{VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
  info.messageSeverity =
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT;
  info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
  info.pfnUserCallback = on_validation_message;
  return info;
}

}  // namespace

Result<std::shared_ptr<const Instance>> Instance::get() {
  // Never destroyed: at exit a driver may be gone before us.
  static const auto* const instance = new Result<std::shared_ptr<const Instance>>(create());
  return *instance;
}

Result<std::shared_ptr<const Instance>> Instance::create() {
  auto library = DynamicLibrary::open({"libvulkan.so.1", "libvulkan.so"});
  if (!library) return make_error(ErrorCode::kNotFound, "vulkan loader: {}", library.error().message);
  std::shared_ptr<Instance> instance(new Instance);
  instance->library_ = *library;
  instance->GetInstanceProcAddr =
      reinterpret_cast<PFN_vkGetInstanceProcAddr>(instance->library_->symbol("vkGetInstanceProcAddr"));
  if (!instance->GetInstanceProcAddr)
    return make_error(ErrorCode::kNotFound, "vulkan loader: {} has no vkGetInstanceProcAddr",
                      instance->library_->name());
  if (Status status = instance->create_handle(); !status) return status.error();
  return std::shared_ptr<const Instance>(instance);
}

Status Instance::create_handle() {
#define VK_GLOBAL(name) name = reinterpret_cast<PFN_vk##name>(GetInstanceProcAddr(nullptr, "vk" #name));
#define VK_INSTANCE(name)
#define VK_DEVICE(name)
#include "backends/vulkan/api_functions.inc"
#undef VK_GLOBAL
#undef VK_INSTANCE
  uint32_t version = VK_API_VERSION_1_0;
  if (EnumerateInstanceVersion) EnumerateInstanceVersion(&version);
  if (version < VK_API_VERSION_1_3)
    return make_error(ErrorCode::kMissingFeature, "vulkan loader: expected version 1.3 or newer, found {}.{}",
                      VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));

  VkApplicationInfo application{VK_STRUCTURE_TYPE_APPLICATION_INFO};
  application.pApplicationName = "llmrt";
  application.apiVersion = VK_API_VERSION_1_3;
  VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  info.pApplicationInfo = &application;
  const char* debug_utils = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
  const VkDebugUtilsMessengerCreateInfoEXT debug = messenger_info();
  const bool validate = validation_wanted();
  if (validate) {
    info.pNext = &debug;  // messages of create and destroy themselves
    info.enabledLayerCount = 1;
    info.ppEnabledLayerNames = &kValidationLayer;
    info.enabledExtensionCount = 1;
    info.ppEnabledExtensionNames = &debug_utils;
  }
  VK_TRY(CreateInstance(&info, nullptr, &handle_), "vkCreateInstance");
#define VK_GLOBAL(name)
#define VK_INSTANCE(name) name = reinterpret_cast<PFN_vk##name>(GetInstanceProcAddr(handle_, "vk" #name));
#include "backends/vulkan/api_functions.inc"
#undef VK_GLOBAL
#undef VK_INSTANCE
#undef VK_DEVICE
  if (validate) {
    const auto create = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
        GetInstanceProcAddr(handle_, "vkCreateDebugUtilsMessengerEXT"));
    VK_TRY(create(handle_, &debug, nullptr, &messenger_), "vkCreateDebugUtilsMessengerEXT");
  }
  return {};
}

Instance::~Instance() {
  if (messenger_) {
    const auto destroy = reinterpret_cast<PFN_vkDestroyDebugUtilsMessengerEXT>(
        GetInstanceProcAddr(handle_, "vkDestroyDebugUtilsMessengerEXT"));
    destroy(handle_, messenger_, nullptr);
  }
  if (handle_) DestroyInstance(handle_, nullptr);
}

Result<std::vector<VkPhysicalDevice>> Instance::physical_devices() const {
  uint32_t count = 0;
  VK_TRY(EnumeratePhysicalDevices(handle_, &count, nullptr), "vkEnumeratePhysicalDevices");
  std::vector<VkPhysicalDevice> devices(count);
  VK_TRY(EnumeratePhysicalDevices(handle_, &count, devices.data()), "vkEnumeratePhysicalDevices");
  devices.resize(count);
  return devices;
}

void DeviceApi::load(const Instance& instance, VkDevice device) {
#define VK_GLOBAL(name)
#define VK_INSTANCE(name)
#define VK_DEVICE(name) name = reinterpret_cast<PFN_vk##name>(instance.GetDeviceProcAddr(device, "vk" #name));
#include "backends/vulkan/api_functions.inc"
#undef VK_GLOBAL
#undef VK_INSTANCE
#undef VK_DEVICE
}

}  // namespace llmrt::vulkan
