"""What authors write transforms with: DoFns, state and timers, side inputs, combiners."""
