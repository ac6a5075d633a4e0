"""Installs packages in a fence, and writes them to standard output as an archive.

It runs as a guest: whoever reads the archive believes nothing of it.
"""
import compileall
import csv
import glob
import importlib.util
import os
import py_compile
import subprocess
import sys
import tarfile
import warnings

NO_INSTALLER, NOT_INSTALLED, FOREIGN_METADATA = 3, 4, 5

# Authorities that this machine trusts, those of a company included, where distributions keep them.
AUTHORITIES = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"]


def installer():
    """Returns the command of pip, and what it needs in the environment: its own wheel where it is not installed."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-I", "-m", "pip"], {}
    bundled = [os.path.join(os.path.dirname(os.__file__), "ensurepip/_bundled"), "/usr/share/python-wheels"]
    wheels = [wheel for directory in bundled for wheel in sorted(glob.glob(directory + "/pip-*.whl"))]
    if not wheels:
        sys.exit(NO_INSTALLER)
    return [sys.executable, "-S", "-m", "pip"], {"PYTHONPATH": wheels[-1]}


def install(target, index, trusted, requirements):
    command, added = installer()
    # Neither the user's configuration nor anything else of this machine is in the fence; `--isolated` says so to pip.
    command += ["--isolated", "--disable-pip-version-check", "--no-input", "--no-color", "--no-cache-dir", "install"]
    command += ["--only-binary", ":all:", "--no-compile", "--progress-bar", "off", "--retries", "2", "--timeout", "20"]
    command += ["--index-url", index, "--target", target]
    if trusted != "-":
        command += ["--trusted-host", trusted]
    for authorities in filter(os.path.exists, AUTHORITIES):
        command += ["--cert", authorities]
    # Standard output is the archive's.
    ended = subprocess.run([*command, "--", *requirements], env={**os.environ, **added}, stdout=2)
    if ended.returncode != 0:
        sys.exit(NOT_INSTALLED)


def check_metadata(target):
    """Refuses a package that brings the metadata of another, which would look installed: pip records all files of each."""
    for record in glob.glob(target + "/*.dist-info/RECORD"):
        own = os.path.basename(os.path.dirname(record))
        with open(record, newline="", encoding="utf-8") as rows:
            directories = {path.split("/")[0] for path, *_ in csv.reader(rows)}
        if any(name.endswith(".dist-info") and name != own for name in directories):
            sys.exit(FOREIGN_METADATA)


def compile_all(target, seen):
    """Compiles the modules, which guests cannot do where they see them. Nothing checks them against their sources again:
    these do not change."""
    warnings.simplefilter("ignore")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(target, quiet=2, stripdir=target, prependdir=seen, invalidation_mode=unchecked)


def write(target):
    output = os.fdopen(os.dup(1), "wb")
    with output, tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for directory, directories, files in os.walk(target):
            directories.sort()
            for name in sorted(directories) + sorted(files):
                path = os.path.join(directory, name)
                info = archive.gettarinfo(path, os.path.relpath(path, target))
                info.mtime = info.uid = info.gid = 0
                info.uname = info.gname = ""
                if info.isreg():
                    with open(path, "rb") as content:
                        archive.addfile(info, content)
                else:
                    archive.addfile(info)


def main(index, trusted, seen, *requirements):
    target = "/tmp/packages"
    install(target, index, trusted, requirements)
    check_metadata(target)
    compile_all(target, seen)
    write(target)


main(*sys.argv[1:])
