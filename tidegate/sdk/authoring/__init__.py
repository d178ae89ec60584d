"""The building blocks of transforms: DoFns, state and timers, side inputs, combiners."""
