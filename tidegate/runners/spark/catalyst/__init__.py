"""Relations computed by Spark itself: which steps of a pipeline, as which DataFrames, and where they meet the rest."""
