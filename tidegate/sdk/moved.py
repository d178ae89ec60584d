"""The current modules and names of classes whose older names stand in stored pickles.

Checkpoints, savepoints, compiled pipelines, session journals and Spark commit logs outlive the version that wrote
them. They are read by `loads`, which looks up every class here. Data exchanged within a run is of one version, for
which `pickle.loads` suffices.

A module that moves gets a line in `MODULES`; a class or function that is renamed gets a line in `NAMES` under its old
module. Lines are never removed, nor changed when their target moves again.

>>> moves = Moves({"a.rows": "a.data.rows", "a.data.rows": "a.tables"}, {("a.tables", "Row"): ("a.tables", "Record")})
>>> moves.current("a.rows", "Table"), moves.current("a.rows", "Row.of"), moves.current("elsewhere", "Row")
(('a.tables', 'Table'), ('a.tables', 'Record.of'), ('elsewhere', 'Row'))
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from types import ModuleType
from typing import Any, BinaryIO, Final

MODULES: Final[Mapping[str, str]] = {
    "tidegate.runners.engine.blame": "tidegate.runners.engine.errors.attribution",
    "tidegate.runners.engine.carried": "tidegate.runners.engine.errors.transport",
    "tidegate.runners.engine.clock": "tidegate.runners.engine.time.clock",
    "tidegate.runners.engine.marks": "tidegate.runners.engine.time.watermarks",
    "tidegate.runners.engine.memory": "tidegate.runners.engine.memory.sizing",
    "tidegate.runners.engine.spill": "tidegate.runners.engine.memory.spill",
    "tidegate.runners.engine.gathered": "tidegate.runners.engine.memory.external_sort",
    "tidegate.runners.engine.checks": "tidegate.runners.engine.checks.contracts",
    "tidegate.runners.engine.crossing": "tidegate.runners.engine.checks.exchange",
    "tidegate.runners.engine.trials": "tidegate.runners.engine.checks.combiners",
    "tidegate.runners.engine.snapshots": "tidegate.runners.engine.state.keyed_state",
    "tidegate.runners.engine.state": "tidegate.runners.engine.state.tables",
    "tidegate.runners.engine.state_cells": "tidegate.runners.engine.state.cells",
    "tidegate.runners.engine.timers": "tidegate.runners.engine.state.timers",
    "tidegate.runners.engine.paging": "tidegate.runners.engine.state.tiered",
    "tidegate.runners.engine.due": "tidegate.runners.engine.state.key_wakeups",
    "tidegate.runners.engine.machine": "tidegate.runners.engine.triggers.base",
    "tidegate.runners.engine.leaf_triggers": "tidegate.runners.engine.triggers.leaf",
    "tidegate.runners.engine.composite_triggers": "tidegate.runners.engine.triggers.composite",
    "tidegate.runners.engine.triggers": "tidegate.runners.engine.triggers.factory",
    "tidegate.runners.engine.keyed": "tidegate.runners.engine.keyed_batch",
    "tidegate.runners.engine.links": "tidegate.runners.engine.elementwise.fused_node",
    "tidegate.runners.engine.codegen": "tidegate.runners.engine.elementwise.codegen",
    "tidegate.runners.engine.generated": "tidegate.runners.engine.elementwise.compiled",
    "tidegate.runners.engine.elementwise.compiled": "tidegate.runners.engine.loops.compiled",
    "tidegate.runners.engine.parted": "tidegate.runners.engine.elementwise.split_by_window",
    "tidegate.runners.engine.tally": "tidegate.runners.engine.elementwise.counters",
    "tidegate.runners.engine.chain": "tidegate.runners.engine.elementwise.chain",
    "tidegate.runners.engine.grouped": "tidegate.runners.engine.grouping.base",
    "tidegate.runners.engine.combiners": "tidegate.runners.engine.grouping.combiners",
    "tidegate.runners.engine.folds": "tidegate.runners.engine.grouping.fold_codegen",
    "tidegate.runners.engine.contents": "tidegate.runners.engine.grouping.accumulation",
    "tidegate.runners.engine.tables": "tidegate.runners.engine.grouping.batch_table",
    "tidegate.runners.engine.window_major": "tidegate.runners.engine.grouping.window_table",
    "tidegate.runners.engine.whole": "tidegate.runners.engine.grouping.global_combine",
    "tidegate.runners.engine.session_table": "tidegate.runners.engine.grouping.sessions.table",
    "tidegate.runners.engine.session_times": "tidegate.runners.engine.grouping.sessions.counts",
    "tidegate.runners.engine.sessions": "tidegate.runners.engine.grouping.sessions.batch",
    "tidegate.runners.engine.live_sessions": "tidegate.runners.engine.grouping.sessions.streaming",
    "tidegate.runners.engine.cells": "tidegate.runners.engine.windowing.pane_state",
    "tidegate.runners.engine.holds": "tidegate.runners.engine.windowing.watermark_holds",
    "tidegate.runners.engine.alarms": "tidegate.runners.engine.windowing.window_wakeups",
    "tidegate.runners.engine.windowed": "tidegate.runners.engine.windowing.operator",
    "tidegate.runners.engine.merging": "tidegate.runners.engine.windowing.merging",
    "tidegate.runners.engine.stateloop": "tidegate.runners.engine.stateful.codegen",
    "tidegate.runners.engine.stateful": "tidegate.runners.engine.stateful.operator",
    "tidegate.runners.engine.sides": "tidegate.runners.engine.side_inputs.view",
    "tidegate.runners.engine.waiting": "tidegate.runners.engine.side_inputs.operator",
    "tidegate.runners.engine.ordered": "tidegate.runners.engine.ordering.time_ordered",
    "tidegate.runners.engine.ingest": "tidegate.runners.engine.sources.split_reader",
    "tidegate.runners.engine.created": "tidegate.runners.engine.sources.created",
    "tidegate.runners.engine.writing": "tidegate.runners.engine.sinks.writer",
    "tidegate.runners.engine.build": "tidegate.runners.engine.factory",
    "tidegate.runners.engine.graph": "tidegate.runners.engine.operator_graph",
    "tidegate.runners.engine.warned": "tidegate.runners.engine.run_warnings",
    "tidegate.runners.engine.latch": "tidegate.runners.completion",
    "tidegate.runners.streaming.settings": "tidegate.runners.streaming.model.settings",
    "tidegate.runners.streaming.options": "tidegate.runners.streaming.model.options",
    "tidegate.runners.streaming.layout": "tidegate.runners.streaming.model.topology",
    "tidegate.runners.streaming.job": "tidegate.runners.streaming.model.job_spec",
    "tidegate.runners.streaming.facts": "tidegate.runners.streaming.model.step_state",
    "tidegate.runners.streaming.failures": "tidegate.runners.streaming.model.exit_status",
    "tidegate.runners.streaming.fingerprint": "tidegate.runners.streaming.model.fingerprint",
    "tidegate.runners.streaming.events": "tidegate.runners.streaming.protocol.stream_items",
    "tidegate.runners.streaming.messages": "tidegate.runners.streaming.protocol.worker_messages",
    "tidegate.runners.streaming.actions": "tidegate.runners.streaming.protocol.coordinator_io",
    "tidegate.runners.streaming.submission": "tidegate.runners.streaming.protocol.client_messages",
    "tidegate.runners.streaming.wire": "tidegate.runners.streaming.network.framing",
    "tidegate.runners.streaming.codec": "tidegate.runners.streaming.network.codec",
    "tidegate.runners.streaming.channels": "tidegate.runners.streaming.network.channels",
    "tidegate.runners.streaming.routing": "tidegate.runners.streaming.network.partitioner",
    "tidegate.runners.streaming.network.partitioner": "tidegate.runners.exchange.stream_partitioner",
    "tidegate.runners.streaming.blocking": "tidegate.runners.streaming.network.blocking_exchange",
    "tidegate.runners.streaming.storage": "tidegate.runners.streaming.storage.local",
    "tidegate.runners.streaming.background": "tidegate.runners.streaming.storage.background",
    "tidegate.runners.streaming.backends": "tidegate.runners.streaming.state.backend",
    "tidegate.runners.streaming.rocks": "tidegate.runners.streaming.state.rocksdb",
    "tidegate.runners.streaming.statefiles": "tidegate.runners.streaming.state.files",
    "tidegate.runners.streaming.files": "tidegate.runners.streaming.state.uploads",
    "tidegate.runners.streaming.snapshots": "tidegate.runners.streaming.state.task_state",
    "tidegate.runners.streaming.restoring": "tidegate.runners.streaming.state.restore",
    "tidegate.runners.streaming.checkpoints": "tidegate.runners.streaming.checkpoint.tracker",
    "tidegate.runners.streaming.manifest": "tidegate.runners.streaming.checkpoint.manifest",
    "tidegate.runners.streaming.gathering": "tidegate.runners.streaming.checkpoint.manifest_builder",
    "tidegate.runners.streaming.resume": "tidegate.runners.streaming.checkpoint.recovery",
    "tidegate.runners.streaming.record": "tidegate.runners.streaming.checkpoint.job_record",
    "tidegate.runners.streaming.opening": "tidegate.runners.streaming.checkpoint.epoch_fencing",
    "tidegate.runners.streaming.ownership": "tidegate.runners.streaming.checkpoint.ownership",
    "tidegate.runners.streaming.commits": "tidegate.runners.streaming.checkpoint.commit_queue",
    "tidegate.runners.streaming.counted": "tidegate.runners.streaming.checkpoint.metrics_codec",
    "tidegate.runners.streaming.inspecting": "tidegate.runners.streaming.checkpoint.inspect",
    "tidegate.runners.streaming.coordinator": "tidegate.runners.streaming.coordinator.coordinator",
    "tidegate.runners.streaming.checkpointing": "tidegate.runners.streaming.coordinator.checkpoint_coordinator",
    "tidegate.runners.streaming.crew": "tidegate.runners.streaming.coordinator.workers",
    "tidegate.runners.streaming.deployment": "tidegate.runners.streaming.coordinator.deployment",
    "tidegate.runners.streaming.regions": "tidegate.runners.streaming.coordinator.region_schedule",
    "tidegate.runners.streaming.splits": "tidegate.runners.streaming.coordinator.split_assigner",
    "tidegate.runners.streaming.restarts": "tidegate.runners.streaming.coordinator.restart_strategy",
    "tidegate.runners.streaming.outbox": "tidegate.runners.streaming.coordinator.outbox",
    "tidegate.runners.streaming.settling": "tidegate.runners.streaming.coordinator.quiescence",
    "tidegate.runners.streaming.worker": "tidegate.runners.streaming.worker.worker",
    "tidegate.runners.streaming.task": "tidegate.runners.streaming.worker.task",
    "tidegate.runners.streaming.world": "tidegate.runners.streaming.worker.environment",
    "tidegate.runners.streaming.alignment": "tidegate.runners.streaming.worker.barrier_alignment",
    "tidegate.runners.streaming.barriers": "tidegate.runners.streaming.worker.barrier_handler",
    "tidegate.runners.streaming.share": "tidegate.runners.streaming.worker.task_snapshot",
    "tidegate.runners.streaming.reading": "tidegate.runners.engine.sources.source_reader",
    "tidegate.runners.streaming.pacing": "tidegate.runners.streaming.worker.watermark_alignment",
    "tidegate.runners.streaming.scripted": "tidegate.runners.engine.sources.test_stream",
    "tidegate.runners.streaming.spent": "tidegate.runners.streaming.worker.time_accounting",
    "tidegate.runners.streaming.spilled": "tidegate.runners.streaming.worker.spill_directories",
    "tidegate.runners.streaming.process": "tidegate.runners.streaming.process.job_process",
    "tidegate.runners.streaming.shell": "tidegate.runners.streaming.process.worker_process",
    "tidegate.runners.streaming.forking": "tidegate.runners.streaming.process.fork",
    "tidegate.runners.streaming.nursery": "tidegate.runners.streaming.process.fork_server",
    "tidegate.runners.streaming.job_storage": "tidegate.runners.streaming.process.job_storage",
    "tidegate.runners.streaming.rundirectory": "tidegate.runners.streaming.process.run_directory",
    "tidegate.runners.streaming.client": "tidegate.runners.streaming.client.job_client",
    "tidegate.runners.streaming.travelling": "tidegate.runners.streaming.client.serialization",
    "tidegate.runners.streaming.telling": "tidegate.runners.streaming.client.console",
    "tidegate.runners.streaming.observed": "tidegate.runners.streaming.client.metrics",
    "tidegate.runners.streaming.endpoint": "tidegate.runners.streaming.session.endpoint",
    "tidegate.runners.streaming.session": "tidegate.runners.streaming.session.client",
    "tidegate.runners.streaming.dispatcher": "tidegate.runners.streaming.session.server",
    "tidegate.runners.streaming.keeping": "tidegate.runners.streaming.session.journal",
    "tidegate.runners.streaming.joblog": "tidegate.runners.streaming.session.job_log",
    "tidegate.runners.streaming.storage.base": "tidegate.runners.checkpoint.storage.base",
    "tidegate.runners.streaming.storage.factory": "tidegate.runners.checkpoint.storage.factory",
    "tidegate.runners.streaming.storage.local": "tidegate.runners.checkpoint.storage.local",
    "tidegate.runners.streaming.storage.object_store": "tidegate.runners.checkpoint.storage.object_store",
    "tidegate.runners.streaming.state.files": "tidegate.runners.checkpoint.state_files",
    "tidegate.runners.streaming.state.task_state": "tidegate.runners.checkpoint.task_state",
    "tidegate.runners.streaming.checkpoint.manifest": "tidegate.runners.checkpoint.manifest",
    "tidegate.runners.streaming.checkpoint.manifest_json": "tidegate.runners.checkpoint.manifest_json",
    "tidegate.runners.streaming.checkpoint.metrics_codec": "tidegate.runners.checkpoint.metrics_codec",
    "tidegate.runners.streaming.checkpoint.catalog": "tidegate.runners.checkpoint.catalog",
    "tidegate.runners.streaming.model.step_state": "tidegate.runners.checkpoint.step_state",
    "tidegate.runners.spark.options": "tidegate.runners.spark.plan.options",
    "tidegate.runners.spark.levels": "tidegate.runners.spark.plan.levels",
    "tidegate.runners.spark.work": "tidegate.runners.spark.plan.task_spec",
    "tidegate.runners.spark.artifacts": "tidegate.runners.spark.plan.artifacts",
    "tidegate.runners.spark.failures": "tidegate.runners.spark.plan.failures",
    "tidegate.runners.spark.telling": "tidegate.runners.spark.plan.console",
    "tidegate.runners.spark.columns": "tidegate.runners.spark.plan.column_types",
    "tidegate.runners.spark.routing": "tidegate.runners.spark.shuffle.partitioner",
    "tidegate.runners.spark.rows": "tidegate.runners.spark.shuffle.row_codec",
    "tidegate.runners.spark.held": "tidegate.runners.spark.shuffle.keyed_buffer",
    "tidegate.runners.spark.sides": "tidegate.runners.spark.side_inputs.broadcast",
    "tidegate.runners.spark.indexed": "tidegate.runners.spark.side_inputs.mmap_map",
    "tidegate.runners.spark.reading": "tidegate.runners.spark.task_io.sources",
    "tidegate.runners.spark.writing": "tidegate.runners.spark.task_io.writer",
    "tidegate.runners.spark.frames": "tidegate.runners.spark.task_io.frames",
    "tidegate.runners.spark.pickles": "tidegate.runners.spark.task_io.unpickling",
    "tidegate.runners.spark.bootstrap": "tidegate.runners.spark.worker.entry",
    "tidegate.runners.spark.task": "tidegate.runners.spark.worker.task",
    "tidegate.runners.spark.daemon": "tidegate.runners.spark.worker.daemon",
    "tidegate.runners.spark.execute": "tidegate.runners.spark.driver.execution",
    "tidegate.runners.spark.session": "tidegate.runners.spark.driver.session",
    "tidegate.runners.spark.workers": "tidegate.runners.spark.driver.worker_env",
    "tidegate.runners.spark.shared": "tidegate.runners.spark.driver.shared_paths",
    "tidegate.runners.spark.manifest": "tidegate.runners.spark.driver.commit_log",
    "tidegate.runners.spark.shown": "tidegate.runners.spark.driver.progress",
    "tidegate.runners.spark.counts": "tidegate.runners.spark.driver.element_counts",
    "tidegate.sdk.owner_only": "tidegate.sdk.private_files",
    "tidegate.sdk.functions": "tidegate.sdk.user_code.user_fn",
    "tidegate.sdk.analysis": "tidegate.sdk.user_code.bytecode",
    "tidegate.sdk.arguments": "tidegate.sdk.user_code.validation",
    "tidegate.sdk.lines": "tidegate.sdk.user_code.source_lines",
    "tidegate.sdk.generations": "tidegate.sdk.user_code.redefined_classes",
    "tidegate.sdk.never_run": "tidegate.sdk.user_code.never_run",
    "tidegate.sdk.options": "tidegate.sdk.options.model",
    "tidegate.sdk.defaults": "tidegate.sdk.options.defaults",
    "tidegate.sdk.flags": "tidegate.sdk.options.flags",
    "tidegate.sdk.kinds": "tidegate.sdk.options.flag_types",
    "tidegate.sdk.quantities": "tidegate.sdk.options.quantities",
    "tidegate.sdk.script": "tidegate.sdk.options.script",
    "tidegate.sdk.hints": "tidegate.sdk.typehints.hints",
    "tidegate.sdk.types": "tidegate.sdk.typehints.compatibility",
    "tidegate.sdk.signatures": "tidegate.sdk.typehints.signatures",
    "tidegate.sdk.window_types": "tidegate.sdk.windowing.window",
    "tidegate.sdk.windows": "tidegate.sdk.windowing.assigners",
    "tidegate.sdk.calendar_windows": "tidegate.sdk.windowing.calendar",
    "tidegate.sdk.triggers": "tidegate.sdk.windowing.triggers",
    "tidegate.sdk.evictors": "tidegate.sdk.windowing.evictors",
    "tidegate.sdk.presets": "tidegate.sdk.windowing.presets",
    "tidegate.sdk.windowing": "tidegate.sdk.windowing.strategy",
    "tidegate.sdk.block": "tidegate.sdk.data.block",
    "tidegate.sdk.values": "tidegate.sdk.data.values",
    "tidegate.sdk.panes": "tidegate.sdk.data.panes",
    "tidegate.sdk.keys": "tidegate.sdk.data.keys",
    "tidegate.sdk.coders": "tidegate.sdk.data.coders",
    "tidegate.sdk.dofn": "tidegate.sdk.authoring.dofn",
    "tidegate.sdk.state": "tidegate.sdk.authoring.state",
    "tidegate.sdk.sideinputs": "tidegate.sdk.authoring.side_inputs",
    "tidegate.sdk.combine": "tidegate.sdk.authoring.combine",
    "tidegate.sdk.sources": "tidegate.sdk.connectors.sources",
    "tidegate.sdk.sinks": "tidegate.sdk.connectors.sinks",
    "tidegate.sdk.portable.pipeline": "tidegate.sdk.portable.model",
    "tidegate.sdk.portable.schema": "tidegate.sdk.portable.json",
    "tidegate.sdk.portable.references": "tidegate.sdk.portable.integrity",
    "tidegate.sdk.portable.arrival": "tidegate.sdk.portable.loading",
    "tidegate.sdk.portable.pickled": "tidegate.sdk.portable.pickle_graph",
    "tidegate.sdk.portable.draw": "tidegate.sdk.drawing.graph",
    "tidegate.sdk.portable.draw_html": "tidegate.sdk.drawing.html",
    "tidegate.sdk.portable.draw_labels": "tidegate.sdk.drawing.labels",
    "tidegate.sdk.portable.draw_layout": "tidegate.sdk.drawing.layout",
    "tidegate.sdk.portable.draw_svg": "tidegate.sdk.drawing.svg",
    "tidegate.sdk.primitives.groupings": "tidegate.sdk.primitives.grouping",
    "tidegate.sdk.primitives.ends": "tidegate.sdk.primitives.io",
    "tidegate.sdk.primitives.handled": "tidegate.sdk.primitives.exception_handling",
    "tidegate.sdk.looking": "tidegate.sdk.interactive",
    "tidegate.sdk.looking.html": "tidegate.sdk.interactive.html",
    "tidegate.sdk.looking.recorder": "tidegate.sdk.interactive.recorder",
    "tidegate.sdk.looking.runs": "tidegate.sdk.interactive.runs",
    "tidegate.sdk.looking.table": "tidegate.sdk.interactive.table",
    "tidegate.testing.asserting": "tidegate.testing.test_pipeline",
    "tidegate.testing.recorder": "tidegate.testing.pane_recorder",
    "tidegate.testing.records": "tidegate.testing.expected_panes",
    "tidegate.testing.streams": "tidegate.testing.test_stream",
    "tidegate.testing.recording": "tidegate.testing.trace.tracer",
    "tidegate.testing.watching": "tidegate.testing.trace.watcher",
    "tidegate.testing.trace_page": "tidegate.testing.trace.page",
    "tidegate.testing.trace": "tidegate.testing.trace.api",
    "tidegate.testing.sampling": "tidegate.testing.trace.sampling",
    "tidegate.transforms.grouping": "tidegate.transforms.grouping.group_by",
    "tidegate.transforms.cogroup": "tidegate.transforms.grouping.cogroup",
    "tidegate.transforms.join": "tidegate.transforms.grouping.join",
    "tidegate.transforms.batches": "tidegate.transforms.grouping.batches",
    "tidegate.transforms.deduplicate": "tidegate.transforms.grouping.deduplicate",
    "tidegate.transforms.combiners": "tidegate.transforms.combining.combiners",
    "tidegate.transforms.sketches": "tidegate.transforms.combining.sketches",
    "tidegate.transforms.rows": "tidegate.transforms.rows.row",
    "tidegate.transforms.dataframes": "tidegate.transforms.rows.dataframes",
    "tidegate.io.text": "tidegate.io.text.transforms",
    "tidegate.io.text_source": "tidegate.io.text.source",
    "tidegate.io.text_sink": "tidegate.io.text.sink",
    "tidegate.io.text_attempt": "tidegate.io.text.attempt",
    "tidegate.io.text.attempt": "tidegate.io.file_sink.attempt",
    "tidegate.transforms.rows.row": "tidegate.sdk.data.row",
}
"""From the old name of a module to the module that has its contents now."""

NAMES: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("tidegate.runners.engine.time.watermarks", "Mark"): (
        "tidegate.runners.engine.time.watermarks",
        "CollectionStatus",
    ),
    ("tidegate.runners.spark.task_io.writer", "Committing"): ("tidegate.runners.spark.driver.sinks", "SinkCommit"),
    ("tidegate.io.spark", "_found"): ("tidegate.io.spark", "_resolve"),
    ("tidegate.sdk.user_code.user_fn", "Where"): ("tidegate.sdk.user_code.frames", "Where"),
    ("tidegate.sdk.portable.model", "Values"): ("tidegate.sdk.portable.values", "Values"),
    ("tidegate.sdk.pipeline", "PTransform"): ("tidegate.sdk.steps.transform", "PTransform"),
    ("tidegate.sdk.pipeline", "Transform"): ("tidegate.sdk.steps.transform", "Transform"),
    ("tidegate.sdk.pipeline", "ptransform_fn"): ("tidegate.sdk.steps.applied_function", "ptransform_fn"),
    ("tidegate.sdk.interactive.table", "show"): ("tidegate.sdk.interactive.show", "show"),
    ("tidegate.transforms.rows.row", "Select"): ("tidegate.transforms.rows.select", "Select"),
    ("tidegate.transforms.rows.row", "RowOf"): ("tidegate.transforms.rows.select", "RowOf"),
    ("tidegate.transforms.rows.row", "_Values"): ("tidegate.transforms.rows.fields", "_Values"),
    ("tidegate.transforms.grouping.group_by", "OfElements"): (
        "tidegate.transforms.grouping.of_elements",
        "OfElements",
    ),
    ("tidegate.transforms.grouping.group_by", "key_and_value"): ("tidegate.transforms.functions", "key_and_value"),
    ("tidegate.sdk.relational.python.predicate", "predicate"): ("tidegate.sdk.relational.steps.rows", "predicate"),
    ("tidegate.transforms.rows.computed", "computed"): ("tidegate.sdk.relational.steps.rows", "computed"),
    ("tidegate.transforms.grouping.aggregate_columns", "key_function"): (
        "tidegate.sdk.relational.steps.rows",
        "key_function",
    ),
    ("tidegate.transforms.grouping.aggregate_columns", "group_row"): (
        "tidegate.sdk.relational.steps.groups",
        "group_row",
    ),
    ("tidegate.runners.streaming.protocol.worker_messages", "AssignedSplit"): (
        "tidegate.runners.checkpoint.parts",
        "AssignedSplit",
    ),
    ("tidegate.runners.streaming.protocol.worker_messages", "EnumeratorState"): (
        "tidegate.runners.checkpoint.parts",
        "EnumeratorState",
    ),
    ("tidegate.runners.streaming.protocol.worker_messages", "StateHandle"): (
        "tidegate.runners.checkpoint.parts",
        "StateHandle",
    ),
    ("tidegate.runners.streaming.protocol.worker_messages", "SplitProgress"): (
        "tidegate.runners.checkpoint.parts",
        "SplitProgress",
    ),
    ("tidegate.runners.streaming.protocol.worker_messages", "StoredState"): (
        "tidegate.runners.checkpoint.parts",
        "StoredState",
    ),
    ("tidegate.runners.streaming.model.topology", "TaskId"): ("tidegate.runners.checkpoint.task_ids", "TaskId"),
    ("tidegate.runners.streaming.model.topology", "ChannelId"): ("tidegate.runners.checkpoint.task_ids", "ChannelId"),
    ("tidegate.runners.streaming.checkpoint.tracker", "RetainedCheckpoint"): (
        "tidegate.runners.checkpoint.manifest",
        "RetainedCheckpoint",
    ),
    ("tidegate.runners.streaming.checkpoint.recovery", "ResumeError"): (
        "tidegate.runners.checkpoint.matching",
        "ResumeError",
    ),
}
"""From a module and a name at its top level to the current module and name."""

_SUBIMPORT: Final = ("cloudpickle.cloudpickle", "subimport")
"""Cloudpickle pickles a reference to a module as a call of this function with the module's name."""


@dataclass(frozen=True)
class Moves:
    """Modules that have moved and names that have changed. Moves may be chained, but never form a cycle."""

    modules: Mapping[str, str]
    names: Mapping[tuple[str, str], tuple[str, str]]

    def __bool__(self) -> bool:
        return bool(self.modules or self.names)

    def current(self, module: str, name: str) -> tuple[str, str]:
        """The current module and name. `name` may be dotted: the members of a class move with it."""
        head, dot, rest = name.partition(".")
        while True:
            if (found := self.names.get((module, head))) is not None:
                module, head = found
            elif (to := self.modules.get(module)) is not None:
                module = to
            else:
                return module, head + dot + rest

    def original(self, module: str, name: str) -> tuple[str, str]:
        """The first module and name, from which values are computed that must not change with a move."""
        head, dot, rest = name.partition(".")
        before = self._before
        while True:
            if (found := before.names.get((module, head))) is not None:
                module, head = found
            elif (was := before.modules.get(module)) is not None:
                module = was
            else:
                return module, head + dot + rest

    def original_module(self, module: str) -> str:
        """The first name of a module."""
        while (was := self._before.modules.get(module)) is not None:
            module = was
        return module

    @cached_property
    def _before(self) -> Moves:
        return Moves({to: old for old, to in self.modules.items()}, {to: old for old, to in self.names.items()})

    def current_module(self, module: str) -> str:
        """The current name of a module."""
        while (to := self.modules.get(module)) is not None:
            module = to
        return module

    def find(self, module: str, name: str) -> Any:
        """The object that a pickle refers to by this name. ImportError or AttributeError if it does not exist."""
        if (module, name) == _SUBIMPORT:
            return self._import
        module, name = self.current(module, name)
        __import__(module)
        found: Any = sys.modules[module]
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def loads(self, data: Any, buffers: Iterable[Any] = ()) -> Any:
        """Like `pickle.loads`, for data that may have been written before a move."""
        if not self:
            return pickle.loads(data, buffers=buffers)
        return _Unpickler(io.BytesIO(data), self, buffers).load()

    def load(self, file: BinaryIO) -> Any:
        """Like `pickle.load`, for data that may have been written before a move."""
        return _Unpickler(file, self).load()

    def _import(self, module: str) -> ModuleType:
        module = self.current_module(module)
        __import__(module)
        return sys.modules[module]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, moves: Moves, buffers: Iterable[Any] = ()) -> None:
        super().__init__(file, buffers=buffers)
        self._moves = moves

    def find_class(self, module: str, name: str) -> Any:
        return self._moves.find(module, name)


MOVES: Final = Moves(MODULES, NAMES)
loads: Final = MOVES.loads
load: Final = MOVES.load


def get_fields(instance: Any, stored: int) -> list[Any]:
    """The `__getstate__` of a dataclass with slots that has been given fields after its first `stored` ones.

    Fields added later are left out while they have their defaults: the pickle of an object that doesn't use them, and
    with it the fingerprint of a step, is the same as before they were added.
    """
    declared = fields(instance)
    values = [getattr(instance, each.name) for each in declared]
    while len(values) > stored and values[-1] == declared[len(values) - 1].default:
        values.pop()
    return values


def set_fields(instance: Any, state: Sequence[Any]) -> None:
    """The `__setstate__` of a dataclass with slots whose pickles are stored: fields that have been added since an
    object was pickled are the last ones of the class, and get their default values."""
    for number, each in enumerate(fields(instance)):
        object.__setattr__(instance, each.name, state[number] if number < len(state) else each.default)
