"""Statistics of autocorrelated series: means, quantiles, drift, steps, fits, and levels over runs."""
