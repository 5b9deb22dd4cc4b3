"""Training: projectors, teachers, fitted polynomials, and the demo's data."""
