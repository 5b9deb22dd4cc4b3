"""The mathematics in float64: what the hardware's scores are compared with, and how."""
