MAX_FILES = 20_000
MAX_UNPACKED = 256 * 1024 * 1024
# Source that is compiled beforehand: half a minute's work at most.
MAX_COMPILED = 16 * 1024 * 1024


def unpack(wheels, emit):
    """Hands over the files of wheels, as they lie beside each other once they are installed, and libraries where they are looked
    for. The status to end with."""
    import warnings
    import zipfile

    warnings.simplefilter("ignore")
    files, directories, room, compilable = set(), set(), MAX_UNPACKED, MAX_COMPILED
    for wheel in json.loads(wheels):
        try:
            with zipfile.ZipFile(wheel) as archive:
                # Of two that have one place, the first stays.
                members = {path: member for member in reversed(archive.infolist()) if (path := place(member, wheel)) not in files}
                members.pop(None, None)
                files.update(members)
                directories.update(path[:at] for path in members for at, letter in enumerate(path) if letter == "/")
                if not files.isdisjoint(directories):
                    raise ValueError("what is a directory in it is a file elsewhere, or the other way round")
                room -= sum(member.file_size for member in members.values())
                if room < 0 or len(files) > MAX_FILES:
                    raise ValueError(f"all wheels hold more than {MAX_FILES} files, or {MAX_UNPACKED} bytes in them")
                for path, member in members.items():
                    content = archive.read(member)
                    emit(path, content)
                    if path.endswith(".py") and "/test" not in path and len(content) <= compilable:
                        compilable -= len(content)
                        room -= keep_compiled(path, content, room, emit)
        except Exception as error:
            print(f"{wheel.rpartition('/')[2]}: {error or type(error).__name__}", file=sys.stderr)
            return 1
    return 0


def keep_compiled(path, source, room, emit):
    """Hands over what Python makes of a module, so that not every program waits for it. The bytes that it takes."""
    import importlib.util
    import marshal

    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except Exception:
        # Python would tell whoever imports it.
        return 0
    # A hash that is not compared: the source stays as it is.
    compiled = importlib.util.MAGIC_NUMBER + b"\1\0\0\0" + importlib.util.source_hash(source) + marshal.dumps(code)
    if len(compiled) > room:
        return 0
    emit(importlib.util.cache_from_source(path), compiled)
    return len(compiled)


def place(member, archive):
    """Where a member of an archive goes; None if it is not installed, or a directory."""
    parts = member.filename.split("/")
    if member.is_dir():
        parts.pop()
    if any(part in ("", ".", "..") or "\\" in part for part in parts):
        raise ValueError(f"its member {member.filename!r} leads elsewhere")
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ValueError(f"its member {member.filename!r} is neither a file nor a directory")
    if member.is_dir():
        return None
    if archive.endswith(".zip"):
        return "/".join(("/usr/lib", *parts))
    if parts[0].endswith(".data") and len(parts) > 2:
        scheme, *parts = parts[1:]
        if scheme not in ("purelib", "platlib"):
            return None
    return "/".join(("/packages", *parts))


