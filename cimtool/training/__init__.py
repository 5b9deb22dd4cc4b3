"""Training: projectors, teachers and fitted polynomials."""
