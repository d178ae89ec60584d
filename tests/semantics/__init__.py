"""The contract, rule by rule: what every runner must do, run on each runner there is."""
