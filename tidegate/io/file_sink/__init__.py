"""Files written in two phases, whatever their format."""
