"""What exchanges have in common on the streaming runner and on Spark: keys, partitions, blocks as columns."""
