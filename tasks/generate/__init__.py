"""Generate: plan the samples of each model, have nodes decode them, take in what they upload."""
