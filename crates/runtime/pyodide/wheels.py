MAX_FILES = 20_000
MAX_UNPACKED = 256 * 1024 * 1024


def unpack(wheels, emit):
    """Hands over the files of wheels, as they lie beside each other once they are installed. The status to end with."""
    import zipfile

    files, directories, room = set(), set(), MAX_UNPACKED
    for wheel in json.loads(wheels):
        try:
            with zipfile.ZipFile(wheel) as archive:
                # Of two that have one place, the first stays.
                members = {path: member for member in reversed(archive.infolist()) if (path := place(member)) not in files}
                members.pop(None, None)
                files.update(members)
                directories.update(path[:at] for path in members for at, letter in enumerate(path) if letter == "/")
                if not files.isdisjoint(directories):
                    raise ValueError("what is a directory in it is a file elsewhere, or the other way round")
                room -= sum(member.file_size for member in members.values())
                if room < 0 or len(files) > MAX_FILES:
                    raise ValueError(f"all wheels hold more than {MAX_FILES} files, or {MAX_UNPACKED} bytes in them")
                for path, member in members.items():
                    emit(path, archive.read(member))
        except Exception as error:
            print(f"{wheel.rpartition('/')[2]}: {error or type(error).__name__}", file=sys.stderr)
            return 1
    return 0


def place(member):
    """Where a member of a wheel goes below the directory of packages; None if it goes elsewhere or is a directory."""
    parts = member.filename.split("/")
    if member.is_dir():
        parts.pop()
    if any(part in ("", ".", "..") or "\\" in part for part in parts):
        raise ValueError(f"its member {member.filename!r} leads elsewhere")
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ValueError(f"its member {member.filename!r} is neither a file nor a directory")
    if member.is_dir():
        return None
    if parts[0].endswith(".data") and len(parts) > 2:
        scheme, *parts = parts[1:]
        if scheme not in ("purelib", "platlib"):
            return None
    return "/".join(parts)


