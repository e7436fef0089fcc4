"""External programs as ranks: any command, nccl-tests, workers of KungFu."""
