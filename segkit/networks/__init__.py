"""Networks that learn from annotated images: crops, training, checkpoints, and the network of a tuned bank."""
