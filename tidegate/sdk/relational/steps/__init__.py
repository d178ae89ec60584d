"""The functions, combiners and DoFns that relations are lowered to."""
