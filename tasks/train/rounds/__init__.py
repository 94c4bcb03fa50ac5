"""RL rounds: rollouts in, checked, trained on, weights out, again; see `driver`."""
