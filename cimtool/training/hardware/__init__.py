"""Fine-tuning with the hardware in the loop: what compilation rounds, the gradient passes over."""
