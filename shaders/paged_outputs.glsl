// Pair `pair` of what an item's `token`th token has of a head (behind paged.glsl): of a split what was summed, else
// times `inverse`.
void store_outputs(Item item, uint token, uint head, uint pair, vec2 sums, float inverse) {
  if (item.partial >= 0) {
    uint to = partial_first(item, token, head) + 2u + 2u * pair;
    partials.f[to] = sums.x;
    partials.f[to + 1u] = sums.y;
  } else if (2u * pair < out_dim()) {
    store_pair(result, out_first(item.token_first + token, head), kHeadDim, pair, sums * inverse, kOutDType);
  }
}
