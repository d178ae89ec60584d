"""Pipeline options: models, defaults, command-line flags."""
