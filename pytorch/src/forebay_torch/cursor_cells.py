"""How the training process and the workers of its loaders exchange what a pass is, by shared cells.

The training process writes the next pass, which workers that live on read at the beginning of each
later pass. The worker that takes a loaded state marks it as taken, and the first worker of a pass
reports the pass that it began.
"""

from __future__ import annotations

import ctypes
from typing import Any

from forebay_torch import dist
from forebay_torch.dataset_pass import Pass, Position, ResumePoint
from forebay_torch.shared_cells import SharedCells

__all__ = ["MAX_RESUMES", "CursorCells"]

# How often one epoch may be left and resumed, where each time has to be remembered.
MAX_RESUMES = 64
_NUMBERS = 4

# Cells that the training process writes,
_VERSION, _EPOCH, _LOAD, _RESUME_EPOCH, _RESUME_AT, _EARLIER = range(6)
# that the pass that took the load writes,
_TAKEN_LOAD, _TAKEN_BY = 6, 7
# and that the first worker of each pass writes: the version is last.
_R_NUMBER, _R_EPOCH, _R_BASE, _R_WORKERS, _R_SPLIT, _R_BLOCK, _R_OFFSET, _R_VERSION = range(
    8, 16
)
# Whether somebody chose an epoch; of how many entries the load and the pass are; and numbers of
# earlier passes.
_IS_CHOSEN, _RESUME_TOTAL, _R_TOTAL, _TABLE = range(16, 20)


class CursorCells(SharedCells):
    """The part of a cursor that other processes see, and what they said."""

    def __init__(self) -> None:
        """The next pass is the beginning of epoch 0."""
        super().__init__(_TABLE + MAX_RESUMES * _NUMBERS, ctypes.c_int64)
        self._epoch = 0
        # Counts what the training process did, and the states it loaded.
        self._version = 0
        self._loads = 0
        # Reports of an older version are of passes before the latest one of this process.
        self._floor = 0
        self._resume: ResumePoint | None = None
        self._loaded: ResumePoint | None = None
        # Passes that this worker process has started.
        self._started_passes = 0
        # Whether somebody chose an epoch, and what a loaded state adds to the epoch that Lightning
        # trains.
        self._is_chosen = False
        self._offset = 0

    def _due(self) -> ResumePoint | None:
        """The point at which the next pass resumes, if no other pass has taken it; else None."""
        resume = self._untaken()
        return None if resume is None or resume.epoch != self._epoch else resume

    def _untaken(self) -> ResumePoint | None:
        """The loaded place, if no other pass has taken it."""
        resume = self._resume
        if resume is None:
            return None
        cells = self.existing_cells() if resume.load else None
        if cells is not None and cells[_TAKEN_LOAD] == resume.load:
            by = cells[_TAKEN_BY]
            if not self.is_follower or not dist.is_same_loader(dist.loader_number(), by):
                return None
        return resume

    def _take(self, load: int) -> None:
        cells = self.shared_cells()
        if cells[_TAKEN_LOAD] != load:
            cells[_TAKEN_BY] = dist.loader_number()
            cells[_TAKEN_LOAD] = load

    def _publish(self) -> None:
        """Writes what the next pass is for workers that live on, as the training process."""
        if dist.worker().is_process:
            return
        self._version += 1
        if (cells := self.existing_cells()) is not None:
            self._fill(cells)

    def _publish_choice(self) -> None:
        """Writes that somebody chose an epoch, as the training process."""
        if (cells := self.existing_cells()) is not None and not self.is_follower:
            cells[_IS_CHOSEN] = 1

    def _fill(self, cells: Any) -> None:
        resume = self._resume
        cells[_EPOCH], cells[_LOAD] = self._epoch, self._loads
        cells[_RESUME_EPOCH], cells[_RESUME_AT] = (
            (-1, 0) if resume is None else (resume.epoch, resume.at)
        )
        cells[_RESUME_TOTAL] = 0 if resume is None else resume.total
        earlier = () if resume is None else resume.earlier
        cells[_EARLIER] = len(earlier)
        flat = [number for numbers in earlier for number in numbers]
        cells[_TABLE : _TABLE + len(flat)] = flat
        cells[_IS_CHOSEN] = self._is_chosen
        cells[_VERSION] = self._version

    def _read_training_process(self) -> None:
        """Takes over what the training process says now, in each pass of a worker but its first."""
        self._started_passes += 1
        cells = self.shared_cells()
        if self._started_passes > 1 and cells[_IS_CHOSEN]:
            self._is_chosen = True
        if self._started_passes == 1 or cells[_VERSION] == self._version:
            return
        self._version = cells[_VERSION]
        self._epoch = cells[_EPOCH]
        is_new = cells[_LOAD] != self._loads and cells[_RESUME_EPOCH] >= 0
        self._loads = cells[_LOAD]
        if is_new:
            flat = cells[_TABLE : _TABLE + cells[_EARLIER] * _NUMBERS]
            earlier = tuple(
                tuple(flat[at : at + _NUMBERS]) for at in range(0, len(flat), _NUMBERS)
            )
            at, total = cells[_RESUME_AT], cells[_RESUME_TOTAL]
            self._resume = ResumePoint(cells[_RESUME_EPOCH], at, earlier, 0, self._loads, total)

    def _report(self, made: Pass) -> None:
        """Reports the pass that this worker begins to the training process, once for each pass."""
        cells = self.shared_cells()
        number, known = dist.loader_number(), cells[_R_NUMBER]
        if self._started_passes == 1 and number < known and not dist.is_same_loader(number, known):
            # A late worker of a pass that was left: those of the next pass were made after it.
            return
        cells[_R_NUMBER] = number
        cells[_R_EPOCH], cells[_R_BASE] = made.epoch, made.base
        cells[_R_WORKERS], cells[_R_OFFSET] = dist.worker().total, self._offset
        cells[_R_SPLIT], cells[_R_BLOCK] = made.is_split, made.block
        cells[_R_TOTAL] = made.total
        cells[_R_VERSION] = self._version

    def _reported(self, num_samples: int | None) -> Position | None:
        """The pass that workers began after the latest action of this training process, or None.

        If ``num_samples`` of the pass were taken, it may also have started before the next epoch was
        chosen.
        """
        if dist.worker().is_process or (cells := self.existing_cells()) is None:
            return None
        version = cells[_R_VERSION]
        if not cells[_R_WORKERS] or version < self._floor:
            return None
        if version != self._version and not num_samples:
            return None
        base, loaded = cells[_R_BASE], self._loaded
        earlier = loaded.earlier if loaded is not None and base else ()
        workers, is_split = cells[_R_WORKERS], bool(cells[_R_SPLIT])
        epoch, block, total = cells[_R_EPOCH], cells[_R_BLOCK], cells[_R_TOTAL]
        return Position(epoch, base, earlier, workers, is_split, block, total)

    def _learn_epoch(self) -> None:
        """Takes over the epoch that workers resumed by states of their own, or took of Lightning."""
        reported = self._reported(None)
        if reported is not None:
            cells = self.shared_cells()
            self._offset = cells[_R_OFFSET]
            self._epoch = cells[_EPOCH] = reported.epoch
