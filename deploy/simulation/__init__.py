"""The whole control loop on a simulated clock and cluster, over traces; and what is learned from them beforehand."""
