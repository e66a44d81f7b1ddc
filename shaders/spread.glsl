// The number of a group where they may be more than a device takes in x (backends/vulkan/kernel.h, spread).
uint spread_group() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
