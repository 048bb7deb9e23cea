"""The driver of a sweep: probes, subsets, trials and views of one experiment."""
