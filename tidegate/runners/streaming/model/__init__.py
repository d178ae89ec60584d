"""What coordinator, workers and clients all know about a job: settings, topology, the steps that keep state."""
