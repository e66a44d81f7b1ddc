// log(1 + exp(x)). log(1 + e) by the series of the inverse hyperbolic tangent: a device's log is only good to an absolute
// error of 2^-21 near 1.
float softplus(float x) {
  float e = exp(-abs(x)), z = e / (2.0 + e), s = z * z;
  float series = 1.0 + s * (1.0 / 3.0 + s * (1.0 / 5.0 + s * (1.0 / 7.0 + s * (1.0 / 9.0 + s * (1.0 / 11.0 + s / 13.0)))));
  return max(x, 0.0) + 2.0 * z * series;
}
