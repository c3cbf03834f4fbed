"""Splits a text by the processes that wrote its lines, where the lines name them, and adds up
the figures of several processes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from naive_speculate.tools.doctor.reading import Format, Part, Reading, mean

_TIME = r"(?:\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]? +)?"
_PID = r"\((\w[^()\n]{0,80}?\bpid=\d+[^()\n]{0,40})\)"  # vLLM's processes, Ray's workers
_PREFIXES = [  # names that stand before a line, and are removed from it
    # Docker Compose, foreman, pm2; not a table's row of counters
    re.compile(r"(?:[\d:]{8} )?(?:\d+\|)?(?!\S*(?:spec_|num_))([A-Za-z][\w.-]*) *\| "),
    # llama.cpp's router (a child's port), MPI, torchrun
    re.compile(r"\[((?:rank|default)?\d{1,6}|\d+,\d+)\](?:<\w+>)?:? ?"),
    re.compile(rf"{_TIME}\[(pod/[^\]\s]+)\] "),  # kubectl logs --prefix
    re.compile(  # a Kubernetes pod: of a deployment, or of a stateful set
        rf"{_TIME}((?:[a-z0-9]+-)+(?:(?=[a-z]*\d)[a-z0-9]{{5}}|[bcdfghjklmnpqrstvwxz2456789]{{5}})"
        r"|(?:[a-z][a-z0-9]*-)+\d{1,3})(?= )"
    ),
    re.compile(  # journald and syslog: host and unit[pid]
        r"(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\dT\S+) (\S+ [\w@.:-]+\[\d+\]): "
    ),
    re.compile(r"([^\s:|{]+\.(?:log|txt|out|err))[:-](?:\d+[:-])?"),  # grep's file
    re.compile(r"(\d{1,4}): "),  # srun --label
    re.compile(rf"{_PID} ?"),
]
_NAMES = [  # names within a line
    re.compile(_PID),
    re.compile(r"\b(DP\d+)\b[^\]\n]{0,30}\]"),  # SGLang's data-parallel ranks
    re.compile(r"(#dp-rank: \d+|\bDP RANK \d+)"),  # tokenspeed's
    re.compile(r"""^[^{]*?\b(?:pod|container|pod_name|container_name|hostname)="?([^\s",}]+)"""),
]
_FILE = re.compile(r"==> (\S.{0,200}?) <==\s*")  # tail's and head's
_ENGINE = re.compile(r"\bEngine (\d{3}):")
_OF_ENGINE = "SpecDecoding metrics:"
RECORD = (  # fields of a log's JSON record that name its process
    *("_HOSTNAME", "hostname", "host", "pod", "pod_name", "container", "container_name"),
    *("_SYSTEMD_UNIT", "service", "process", "instance", "_PID", "pid"),
)
_MARK = "\x1d"  # stands around the name that a record gives


def marked(record: Mapping[str, Any], message: str) -> str:
    """A record's message with the process that the record names, for `split`."""
    kubernetes = record.get("kubernetes")
    fields = {**(kubernetes if isinstance(kubernetes, dict) else {}), **record}
    named = [str(fields[key]) for key in RECORD if isinstance(fields.get(key), str | int)]
    name = " ".join(dict.fromkeys(named)).replace(_MARK, "")
    mark = f"{_MARK}{name}{_MARK}" if name else ""
    return "\n".join(mark + line for line in message.split("\n"))


def split(text: str) -> list[tuple[str, str]]:
    """Each line with its process, without the names that stand before it; a line without a name is
    of the process of the line before, or of ""."""
    lines, file, last = list[tuple[str, str]](), "", ""
    engines: dict[str, str] = {}  # vLLM's front end reports one engine after another
    for line in text.split("\n"):
        if header := _FILE.fullmatch(line):
            file, last = header[1], header[1]
            continue
        names, line = _prefixes(line)
        names += [match[1] for pattern in _NAMES if (match := pattern.search(line))]
        name = " ".join(dict.fromkeys([file, *names] if file else names))
        if engine := _ENGINE.search(line):
            engines[name] = engine[1]
        if name in engines and (engine or _OF_ENGINE in line):
            name = f"{name} engine {engines[name]}".strip()
        last = name or last
        lines.append((last, line))
    return lines


def _prefixes(line: str) -> tuple[list[str], str]:
    names = list[str]()
    if line.startswith(_MARK):
        _, name, line = line.split(_MARK, 2)
        names.append(name)
    for pattern in _PREFIXES:
        if match := pattern.match(line):
            names.append(match[1])
            line = line[match.end() :]
    return names, line


def together(readings: Mapping[str, Reading]) -> Reading | None:
    """None if one of them has no counts."""
    ones = list(readings.values())
    parts = list[Part]()
    for one in ones:
        if one.num_accepted_tokens is None:
            return None
        counts = one.num_accepted_tokens, one.num_draft_tokens, one.num_steps
        parts.append(Part(*counts, one.rates, one.judged, one.course))
    form = Format(ones[0].engine, ones[0].format, ones[0].source)
    return form.total(
        parts,
        drafted_share=_drafted_share(ones),
        requests_running=_mean(ones, "requests_running"),
        tokens_per_second=_mean(ones, "tokens_per_second"),
        plain_tokens_per_second=_mean(ones, "plain_tokens_per_second"),
        draft_share=_mean(ones, "draft_share"),
        categories=_categories(ones),
        num_after_end=sum(one.num_after_end for one in ones),
        derived=tuple(dict.fromkeys(words for one in ones for words in one.derived)),
        unknown=tuple(dict.fromkeys(words for one in ones for words in one.unknown)),
        processes=dict(readings),
    )


def _mean(ones: Sequence[Reading], name: str) -> float | None:
    return mean(value for one in ones if (value := getattr(one, name)) is not None)


def _drafted_share(ones: Sequence[Reading]) -> float | None:
    steps = all_steps = 0.0
    for one in ones:
        if not one.num_steps or not one.drafted_share:
            return None
        steps += one.num_steps
        all_steps += one.num_steps / one.drafted_share
    return steps / all_steps


def _categories(ones: Sequence[Reading]) -> dict[str, Reading]:
    """Empty if one process names none."""
    if not all(one.categories for one in ones):
        return {}
    names = dict.fromkeys(name for one in ones for name in one.categories)
    categories = {}
    for name in names:
        of_one = {
            str(i): one.categories[name] for i, one in enumerate(ones) if name in one.categories
        }
        if (whole := together(of_one)) is not None:
            categories[name] = replace(whole, processes={})
    return categories
