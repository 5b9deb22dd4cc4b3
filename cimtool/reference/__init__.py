"""The mathematics in float64: the reference for the hardware's scores, and the comparison."""
