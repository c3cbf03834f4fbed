"""The one error that the training scripts show to their user."""


class TrainingError(Exception):
    """A mistake in what the user handed in; the message is one line and says what to change."""
