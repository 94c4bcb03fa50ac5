"""Training: supervised fine-tuning and the project's own nano models."""
