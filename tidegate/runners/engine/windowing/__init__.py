"""The general window operator: any assigner, trigger, evictor, accumulation mode and lateness."""
