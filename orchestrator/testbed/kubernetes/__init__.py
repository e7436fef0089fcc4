"""Uses pods of a Kubernetes cluster as hosts, reached by the program kubectl."""
