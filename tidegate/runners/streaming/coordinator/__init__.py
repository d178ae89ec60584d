"""The coordinator: a pure state machine that schedules tasks, triggers checkpoints and handles failures."""
