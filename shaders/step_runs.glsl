// Steps of tiles dealt out evenly to workgroups (grid x; y is one of the tiles of x): a group has a run of them, which may
// begin and end within a tile. Needs num_all_steps, kTileQuads, kParts, kMatrices and kLaneQuads.
uint first_step(uint group) { return num_all_steps * group / gl_NumWorkGroups.x; }
uint group_of(uint step) { return ((step + 1u) * gl_NumWorkGroups.x - 1u) / num_all_steps; }

// Where a group leaves its sums of a tile that it begins or continues.
uint products_of(uint group, bool begins) {
  return ((gl_WorkGroupID.y * gl_NumWorkGroups.x + group) * 2u + uint(begins)) * kTileQuads;
}

// Where in that quad q of this lane's sums of matrices p and c is.
uint quad_of(uint p, uint c, uint q) {
  return (((gl_SubgroupID * kParts + p) * kMatrices + c) * kLaneQuads + q) * kSubgroup + gl_SubgroupInvocationID;
}
