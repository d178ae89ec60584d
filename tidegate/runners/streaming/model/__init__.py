"""The facts about a job that coordinator, workers and clients share: settings, topology, the steps with state."""
