#!/bin/sh
# The image that conf/docker/Dockerfile begins with, made of Debian's packages, for machines that reach no image registry:
# with Debian's Python (3.13) in the place of 3.12, and with the certificates of this machine. Needs root, mmdebstrap, a Docker daemon.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mmdebstrap --variant=minbase --include=python3,python3-venv,ca-certificates trixie "$folder/root.tar"
cp /etc/ssl/certs/ca-certificates.crt "$folder/"
printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' > "$folder/pip.conf"
cat > "$folder/Dockerfile" <<'END'
FROM scratch
ADD root.tar /
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY pip.conf /etc/pip.conf
RUN ln -s /usr/bin/python3 /usr/local/bin/python && ln -s /usr/bin/python3 /usr/local/bin/python3
CMD ["python3"]
END
docker build -t python:3.12-slim "$folder"
