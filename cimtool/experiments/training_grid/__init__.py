"""Training a model for every point of a grid, and which of them is best."""
