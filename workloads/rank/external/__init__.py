"""Programs of others as ranks: any command, nccl-tests, workers of KungFu."""
