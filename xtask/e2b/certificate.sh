#!/bin/sh
# Makes an authority and its certificate for a name.
# usage: certificate.sh DIRECTORY NAME   (writes authority.pem, certificate.pem and key.pem there)
set -eu
cd "$1"
curve="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
printf 'subjectAltName=DNS:%s\n' "$2" >extensions
{
    # shellcheck disable=SC2086 # options without blanks
    openssl req -x509 $curve -days 2 -subj "/CN=authority of the suites" -keyout authority.key -out authority.pem
    # shellcheck disable=SC2086
    openssl req $curve -subj "/CN=suites" -keyout key.pem -out request.pem
    openssl x509 -req -in request.pem -CA authority.pem -CAkey authority.key -days 2 -extfile extensions -out certificate.pem
} 2>openssl.log
chmod 600 key.pem
