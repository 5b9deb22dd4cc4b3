"""The compiled kernels of the simulator; `operations.prepare` picks one for an operation."""
