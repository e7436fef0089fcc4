"""What a training took until a level of accuracy, from its course."""

from __future__ import annotations

from orchestrator.questions.learning import reached


def course(run, accuracies):
    return [
        {
            "model": "m",
            "run": run,
            "repetition": 1,
            "epoch": epoch,
            "train_s": 10.0 * epoch,
            "sent_bytes": 1e6 * epoch,
            "accuracy": accuracy,
            "loss": 1.0,
        }
        for epoch, accuracy in enumerate(accuracies, 1)
    ]


def test_a_level_is_reached_between_two_epochs_by_a_straight_line():
    rows = course("r1", [0.3, 0.7, 0.65]) + course("r2", [0.1, 0.2, 0.3])
    (one,) = reached(rows, levels=[0.6, 0.8])
    assert (one["run"], one["level"], one["highest"]) == ("r1", 0.6, 0.7)
    assert (one["epochs"], one["train_s"], one["sent_bytes"]) == (1.75, 17.5, 1.75e6)
