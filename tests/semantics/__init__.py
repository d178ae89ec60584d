"""The contract, rule by rule, tested on every runner."""
