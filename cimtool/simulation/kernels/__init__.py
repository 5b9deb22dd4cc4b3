"""The compiled kernels of the simulator; `operations.fast_kernel` picks one for an operation."""
