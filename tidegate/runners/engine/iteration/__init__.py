"""Loops: the rounds of an Iterate, each of which runs the steps of its body on what the round before has left."""
