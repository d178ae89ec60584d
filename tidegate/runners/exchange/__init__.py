"""The parts of exchanges that the streaming runner and Spark share: keys, partitions, blocks as columns."""
