"""What programs and notebooks use: experiments to measure, a store to read, comparisons and figures to show."""
